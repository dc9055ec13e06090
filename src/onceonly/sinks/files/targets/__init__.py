"""The kinds of places that files are put to: folders, whose files are moved, and buckets, whose uploads are ended."""
