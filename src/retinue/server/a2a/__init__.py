"""Agents for other agents: the protocol A2A, version 1, over JSON-RPC and over plain HTTP."""
