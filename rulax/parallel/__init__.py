"""On how many devices: the machine's set-up, threads and, in time, its mesh. The only folder that chooses devices."""
