"""`nvtabular.workflow`: fitting, transforming, saving; also what NVTabular saved."""
