"""Breaking the glass: two decide in place of those who should and cannot be reached, loudly, and a
third looks at it afterwards.

`eligibility` says who may, and whether what they said still counts; `decisions` is the act and its
review; `context` is what pages show of both.
"""
