// cairn_probe: inner parts of the library as commands, for tests that compare them with real torch.
//
// Each command is one function in a file of its own here and a row of the table in main.cc. `argv[0]` is
// the command's name. The function returns the exit status; a cairn::Error that escapes is printed and
// becomes 1, wrong usage is 2.
#pragma once

int probe_copy(int argc, char** argv);
int probe_flatten(int argc, char** argv);
int probe_rewrite_torch(int argc, char** argv);
int probe_dump(int argc, char** argv);
int probe_rewrite_metadata(int argc, char** argv);
int probe_rewrite_safetensors(int argc, char** argv);
int probe_plan(int argc, char** argv);
int probe_load_plan(int argc, char** argv);
int probe_save(int argc, char** argv);
int probe_load(int argc, char** argv);
int probe_load_optimizer(int argc, char** argv);
int probe_read(int argc, char** argv);
int probe_time(int argc, char** argv);
