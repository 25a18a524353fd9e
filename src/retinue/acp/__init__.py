"""Retinue in an editor, over the Agent Client Protocol: a conversation in the editor is a
conversation in the project's store, and the work is the host's."""
