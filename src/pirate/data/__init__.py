"""Images to register: datasets as they are downloaded, and a generated pair whose true field is known."""
