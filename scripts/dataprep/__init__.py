"""Text to tokens: the parts of scripts/prepare_data.py.

records.py        reading data files with the place of every record
chat_template.py  Jinja chat templates as Hugging Face renders them
messages.py       messages and tools in every spelling, as a template takes them
turns.py          conversation -> text, where its turns lie, and that nothing is missing in it
examples.py       record -> prompt and answers, by the names of its columns
formats.py        record -> Rendered (text and which parts of it are trained)
tokenizer.py      Rendered -> Sample (token ids and labels)
show.py           samples, progress, problems and notes for the user
output.py         writing samples as JSONL or HDF5, under a temporary name until complete
"""
