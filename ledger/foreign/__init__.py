"""What others tell in formats of their own, as events of ours: `transcripts`, `traces` (OTLP) and
`cloud_events`. Each is a reader; what they read is recorded as all other events are.
"""
