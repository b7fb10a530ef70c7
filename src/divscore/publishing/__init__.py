"""Control sets made public: a folder with data, descriptions for people and machines, objections and a history."""
