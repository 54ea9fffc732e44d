"""Models behind a server: llama.cpp, in this process too, and OpenAI-compatible ones such as vLLM."""
