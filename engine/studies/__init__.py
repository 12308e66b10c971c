"""What an audit and a refusal experiment ask, one question per file."""
