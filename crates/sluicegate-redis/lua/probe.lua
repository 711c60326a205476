#!lua
-- Does nothing. A server that rejects writes rejects every script that may write, before it runs:
-- out of memory, a failed save to disk, too few replicas, or a replica itself.
return 1
