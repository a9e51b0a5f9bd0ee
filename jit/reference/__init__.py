"""The reference interpreter as a back end."""
