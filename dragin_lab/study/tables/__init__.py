"""The paper's tables with one's own results beside them; ``table.table`` makes one."""
