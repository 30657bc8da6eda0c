"""Writes one output (arguments: destination, MiB, mode); its parent kills it on the way."""

import sys

from eagleconv.checkpoint import copy_stream, writer
from eagleconv.checkpoint.json_file import dump_json
from eagleconv.checkpoint.manifest import write_records

destination, size, mode = sys.argv[1], int(sys.argv[2]) << 20, sys.argv[3]
if mode == "direct":
    copy_stream.DIRECT_FROM, copy_stream.PIECE = 1 << 20, 1 << 20
if mode == "named":
    writer.can_be_unnamed = lambda parent: False
data = bytes(range(256)) * (size // 256)
print("ready", flush=True)
with writer.OutputDirectory(destination) as output:
    output.add_bytes("config.json", b'{"a": 1}\n')
    output.add_tensors([("t", "U8", (size,), data)], {}, max_shard_bytes=size)
    output.commit(lambda records: dump_json({"files": write_records(records)}))
print("done", flush=True)
