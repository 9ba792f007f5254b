"""The embedded web sites: real applications, seeded and run on this machine, one database per episode."""
