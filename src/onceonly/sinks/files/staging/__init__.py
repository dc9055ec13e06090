"""Files between their first byte and their final name: opened, staged, placed, or left over."""
