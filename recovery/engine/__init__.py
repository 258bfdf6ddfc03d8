"""The engine: claim, check, intend, act, settle, verify. One effect, whatever breaks."""
