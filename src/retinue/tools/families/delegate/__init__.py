"""The family `delegate`: batches of tasks."""
