"""What all pages share: markup that escapes, one look in light and dark, and a document that loads nothing."""
