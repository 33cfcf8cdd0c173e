#!/usr/bin/env bash
# docs.sh: build/docs/site, the pages of docs/ with those of the C++ headers and the Python docstrings. A warning is a
# failure, and so is a link that leads nowhere.
set -euo pipefail
cd "$(dirname "$0")/.."
say() { printf 'docs: %s\n' "$*"; }

if ! command -v doxygen >/dev/null; then
  [ "$(id -u)" -eq 0 ] || { say "doxygen is missing: apt-get install doxygen" >&2; exit 1; }
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends doxygen >/dev/null
fi
.venv/bin/python -c 'import mkdocs, mkdocstrings_handlers.python' 2>/dev/null ||
  .venv/bin/python -m pip install -qq --disable-pip-version-check --no-input -r tools/requirements-docs.txt

pages=build/docs/pages
rm -rf build/docs
mkdir -p "$pages"
cp docs/*.md "$pages"
# README and CONTRIBUTING stand beside docs/ in the tree and among its pages here; sources have no page.
for page in README CONTRIBUTING; do
  sed -E 's#\]\(docs/#](#g; s#\[([^]]+)\]\((examples|src|include|tests)/[^)]*\)#`\1`#g' $page.md >"$pages/$page.md"
done
mv "$pages/README.md" "$pages/index.md"
sed -i 's#](README.md#](index.md#g; s#](\.\./README.md#](index.md#g; s#](\.\./CONTRIBUTING.md#](CONTRIBUTING.md#g' "$pages"/*.md

cat >"$pages/api-python.md" <<'MD'
# Python

::: cairn
    options: {members: true, filters: ["!^_"]}

::: cairn.torch
    options: {members: [save, load, async_save, install, uninstall, installed, last_report, guard, prepare, CheckpointError]}
MD
{
  printf '# C++\n\nThe headers; [all classes](cpp/annotated.html).\n\n'
  for header in include/cairn/cairn.h $(ls include/cairn/*.h | grep -v /cairn.h); do
    name=$(basename "$header" .h)
    printf -- '- [`cairn/%s.h`](cpp/%s_8h.html): %s\n' "$name" "${name//_/__}" "$(sed -n '1s#^// ##p' "$header")"
  done
} >"$pages/api-cpp.md"

# Doxygen's pages first, among the others: so that links to them are looked at as well.
mkdir -p "$pages/cpp"
doxygen docs/Doxyfile
.venv/bin/python -m mkdocs build --strict 2>&1 | { grep -v '^INFO' || true; }  # with --quiet it overlooks warnings
say "build/docs/site/index.html"
