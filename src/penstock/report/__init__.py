"""What a person is shown: collected as plain data first, then rendered."""
