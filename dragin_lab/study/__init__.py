"""Results over many episodes: tables, comparisons, causes, needs, budgets."""
