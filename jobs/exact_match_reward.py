#!/usr/bin/env python3
"""A reward program (rewards.md): 1 for a text that is the sample's own completion and has ended, else 0.

It reads a JSON object a line and answers a line each, at once."""
import json
import sys

for line in sys.stdin:
    text = json.loads(line)
    right = text["stopped"] and text["completion"] == text["reference"]
    print(1.0 if right else 0.0, flush=True)
