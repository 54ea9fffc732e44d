"""The paper's tables with your own results beside them; ``table.table`` makes one."""
