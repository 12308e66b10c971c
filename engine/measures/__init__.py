"""What is measured under an edit: text, replies, margins, tasks."""
