from __future__ import annotations

import pytest

from divscore.encoders.registry import ENCODERS, EncoderSpec, Kind, versioned
from divscore.errors import InputError, MissingExtraError


def test_missing_extra_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("divscore.encoders.registry.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"'faces' needs PIL, .*: pip install .*pillow"):
        EncoderSpec("faces", "image").load()


@pytest.mark.parametrize(
    ("name", "kind", "model", "options", "says"),
    [
        ("ngrams", "image", None, (), "takes texts, not images"),
        ("faces", "text", None, (), "takes images, not texts"),
        ("vgg16", "image", None, (), "needs --model: VGG-16 weights"),
        ("faces", "image", "weights.onnx", (), r"has no model files; remove --model weights\.onnx"),
        ("faces", "image", None, (("colour", "red"),), "no option 'colour'; its options are faces: largest"),
        ("vgg16", "image", "a.h5", (("size", "9"),), "no option 'size'; its options are none"),
        ("faces", "image", None, (("faces", "most"),), "no faces=most; choose faces=largest or faces=all"),
        ("magic", "text", None, (), "unknown encoder 'magic'; choose one of faces, "),
    ],
)
def test_settings_that_are_refused(
    name: str, kind: Kind, model: str | None, options: tuple[tuple[str, str], ...], says: str
) -> None:
    with pytest.raises(InputError, match=says):
        EncoderSpec(name, kind, model, options).load()


def test_every_encoder_is_described() -> None:
    for name, info in ENCODERS.items():
        assert info.summary, name
        assert info.loaders
        assert bool(info.needs) <= bool(info.extra)
        assert set(info.choices) <= set(info.options)
        if not (info.model or info.missing):
            kind = next(iter(info.loaders))
            assert EncoderSpec(name, kind).load().identity.startswith(f"{versioned(name)} ")
