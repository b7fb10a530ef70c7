"""The API does what its description says, whatever is sent: no 5xx, no answer outside the schema."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from webapp import SECRET, Desk, offline, opened_desk, own_cache, write_texts  # noqa: F401  fixtures

from divscore.errors import DivscoreError

CHECKS = (
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
)
NUMBERS = {"project", "item", "source", "control", "choice", "collection", "audit", "page", "row"}
NUMBERS |= {"a", "b", "before", "after"}
EXAMPLES = 6  # of each of about 75 operations


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    """An app in which each thing exists, with the number 1."""
    folder = tmp_path_factory.mktemp("schema")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DIVSCORE_CACHE", str(folder / "cache"))
        write_texts(folder / "labelled.csv", {"sea": 20, "wood": 20}, groups=True)
        with opened_desk(folder / "project", [str(folder / "labelled.csv")]) as opened:
            opened.finish(opened.post("/control-sets", {"source": 1, "attribute": "group"}, 202))
            opened.post("/control-sets/1/choices", {"name": "a", "size": 10, "alpha": 1}, 201)
            project = opened.project(size=10)
            items = opened.get(f"/projects/{project}/items", annotator="x")["items"]
            labels: dict[int, str | None] = {
                item["id"]: "sea" if item["number"] % 2 else "wood" for item in items
            }
            opened.label(project, labels)
            opened.label(project, {items[0]["id"]: "wood"}, "other")
            opened.finish(opened.post(f"/projects/{project}/audit", expected=202))
            opened.post("/collections", {"name": "c", "control": 1, "kind": "text"}, 201)
            texts = [{"id": str(at), "text": f"wave {at} salt"} for at in range(8)]
            opened.call("PUT", "/collections/1/items", json={"items": texts})
            page = {"control": 1, "mode": "text", "url": "http://example.org"}
            opened.post("/page-audits", page, 201)
            ranked = [item | {"rank": at + 1} for at, item in enumerate(texts)]
            opened.post("/page-audits/1/items", {"items": ranked}, 202)
            yield opened


def with_known_ids(case: Any) -> Any:
    """Most requests are about something that exists; those that remove something are not."""
    places = [case.path_parameters, case.query, case.body]
    for place in (each for each in places if isinstance(each, dict)):
        for name in NUMBERS & place.keys():
            if place[name] is not None and len(str(place)) % 4:
                place[name] = 99 if case.method == "DELETE" else 1
    return case


def end_work(desk: Desk) -> None:
    """Wait for jobs: what they import would change the list of modules while Hypothesis goes through it."""
    desk.space.encoder.submit(int).result()
    while any(not task.finished for task in desk.space.tasks.list()):
        time.sleep(0.002)


def test_no_request_leads_outside_the_schema(desk: Desk) -> None:
    schema = schemathesis.openapi.from_asgi(
        "/api/v1/openapi.json",
        desk.client.app,
        headers={"Authorization": f"Bearer {SECRET}", "Host": "127.0.0.1"},
    )
    seen: dict[int, int] = {}
    operations = [result.ok() for result in schema.get_all_operations()]
    assert len(operations) > 60

    for operation in operations:

        @settings(
            max_examples=EXAMPLES,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
            database=None,
        )
        @given(case=operation.as_strategy())
        def check(case: Any) -> None:
            headers = {"Authorization": f"Bearer {SECRET}", "Host": "127.0.0.1"}
            if not case.operation.body and case.method == "POST":
                headers["Content-Type"] = "application/json"
            answer = with_known_ids(case).call(headers=headers)
            end_work(desk)
            case.validate_response(answer, checks=CHECKS)
            seen[answer.status_code] = seen.get(answer.status_code, 0) + 1

        check()
    # Jobs that failed did so for a reason that a person can read.
    errors = [task.error for task in desk.space.tasks.list() if task.error is not None]
    assert [error for error in errors if not isinstance(error, DivscoreError)] == []
    # Not only refusals were tried.
    assert sum(number for status, number in seen.items() if status < 300) > 60, seen
