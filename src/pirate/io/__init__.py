"""Files in and out: everything read is verified first, everything written is whole or absent."""
