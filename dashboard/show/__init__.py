"""What every page has: headings, figures, foot, menu."""
