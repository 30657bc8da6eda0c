"""Bytes: headers, ranges, pickles, the Hub, and the atomic writer. Knows nothing of EAGLE."""
