"""The paper: its data sets, experiments, figures and claims, and the comparison of methods on your own pool."""
