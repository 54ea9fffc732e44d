"""The method: traces, words, scores, triggers, queries, prompts, answers and the loops."""
