"""`merlin.dag`: selectors, nodes and operators of a workflow's graph."""
