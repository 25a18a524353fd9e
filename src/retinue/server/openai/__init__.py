"""Agents for clients that speak the APIs of OpenAI: chat completions and responses."""
