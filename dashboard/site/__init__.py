"""A site of static files: results as figures and sentences, and the shipped model edited in the browser."""
