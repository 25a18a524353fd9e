"""The schema as numbered SQL files, applied in order, each in one transaction with its number in
`user_version`.

A file that was released is never edited: a change of the schema is a new file.
"""
