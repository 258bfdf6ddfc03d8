"""Recovery: from a run that went wrong to a person who has read what was put right.

Its rooms, each standing on those named before it: `models`; `cases`, the row itself; `search`;
`engine`, which makes the calls of a plan; `run_facts`, what is known of a run; `planning`, which
makes steps of it; `triage`, which opens cases; `casework`, what people do with them; `corrections`,
what the affected person reads; `views` and the API.
"""
