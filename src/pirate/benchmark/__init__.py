"""Every method on the same pairs: what is compared, how it is run and measured, and the tables made of it."""
