"""The family `subagent`: one blocking call."""
