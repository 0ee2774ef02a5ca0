"""The process that fetches from stores, one for a host, a user and a set: executed, and never forked from."""
