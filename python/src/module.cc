// cairn._engine: the engine as Python sees it. python/cairn/__init__.py and python/cairn/torch are its public
// faces and _engine.pyi its description.
#include "cairn/version.h"
#include "python.h"

NB_MODULE(_engine, m) {
  using namespace cairn::python;
  m.attr("__version__") = to_str(cairn::version());
  bind_errors(m);
  bind_checkpoint(m);
  bind_plain(m);
  bind_convert(m);
  bind_group(m);
  bind_state(m);
  bind_places(m);
  bind_urls(m);
  bind_storage(m);  // Metadata, which a save returns
  bind_open(m);     // the roles of writers and readers
  bind_save(m);
  bind_load(m);
}
