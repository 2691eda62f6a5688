"""Text to tokens: the parts of scripts/prepare_data.py.

records.py        reading JSONL and JSON files with the place of every record
chat_template.py  Jinja chat templates as Hugging Face renders them
formats.py        record -> Rendered (text and which parts of it are trained)
tokenizer.py      Rendered -> Sample (token ids and labels)
output.py         writing samples as JSONL or HDF5, under a temporary name until complete
"""
