"""Which selector is before which, and whether that depends on the protocol of the study."""
