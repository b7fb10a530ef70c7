"""The paper's experiments, with our estimators beside the paper's on the same draws."""
