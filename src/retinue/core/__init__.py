"""The pure machine: values in, values out. No clock, no ids, no randomness, no input or output.

Read `values` for the nouns, `events` and `effects` for the verbs, `state` for what a run can be,
`run` for what happens next, `tree` for what runs share."""
