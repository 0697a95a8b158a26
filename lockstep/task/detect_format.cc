#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/data/formats/cifar.h"
#include "lockstep/data/formats/csv.h"
#include "lockstep/task/array_files.h"
#include "lockstep/task/data_source.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kKnown =
    "expected a .csv or .tsv table, a text, an .npz or .safetensors file with x and y, or a folder with x.npy and "
    "y.npy, with IDX or CIFAR files, or with a folder of pictures for each class";

DataFormat format_of_folder(const fs::path& folder) {
  std::error_code error;
  if (is_cifar(folder)) return DataFormat::cifar;
  bool folders = false, npy = false;
  std::vector<std::string> names;
  fs::directory_iterator entries(folder, error);
  check(!error, "cannot read {}: {}", folder.string(), error.message());
  constexpr std::size_t kMostEntries = 10'000;
  for (std::size_t i = 0; i < kMostEntries && entries != fs::directory_iterator(); ++i, entries.increment(error)) {
    const std::string name = entries->path().filename().string();
    std::error_code unknown;
    if (name.find("-ubyte") != name.npos) return DataFormat::idx;
    if (entries->is_directory(unknown)) {
      folders = folders || !name.starts_with('.');
    } else if (entries->path().extension() == ".npy") {
      const auto kind = parse_array_name(entries->path().stem().string());
      if (kind && !kind->is_label) return DataFormat::npy;
      npy = true;
    } else {
      names.push_back(name);
    }
  }
  if (folders) return DataFormat::images;
  if (npy) return DataFormat::npy;  // its reader names what is missing
  std::ranges::sort(names);
  const std::string first = names.empty() ? "nothing" : quoted_cell(names[0]);
  fail("{}: the folder has {}{}, {}", folder.string(), first, names.size() > 1 ? " and other files" : "", kKnown);
}

// Whether the text is a table: two or more columns and rows, and a column of numbers.
bool looks_like_table(const std::string& text) {
  try {
    const Table table = parse_csv(text, "");
    if (table.columns() < 2 || table.rows() < 2) return false;
    for (std::int64_t c = 0; c < table.columns(); ++c) {
      bool numbers = true;
      for (std::int64_t r = 0; r < table.rows() && numbers; ++r) {
        const CellKind kind = parse_cell(table.cell(r, c)).kind;
        numbers = kind == CellKind::number || kind == CellKind::missing;
      }
      if (numbers) return true;
    }
  } catch (const Error&) {
  }
  return false;
}

DataFormat format_of_file(const fs::path& path) {
  std::error_code error;
  std::ifstream file(path, std::ios::binary);
  check(file.is_open(), "cannot read {}: {}", path.string(), std::generic_category().message(errno));
  check(fs::is_regular_file(path, error), "cannot read {}: it is not a regular file", path.string());
  std::string start(std::size_t{64} << 10, '\0');
  file.read(start.data(), static_cast<std::streamsize>(start.size()));
  const bool whole = file.gcount() < static_cast<std::streamsize>(start.size());
  start.resize(static_cast<std::size_t>(file.gcount()));
  check(!start.empty(), "{}: empty", path.string());
  if (start.starts_with("\x93NUMPY") || start.starts_with("PK\x03\x04") || start.starts_with("PK\x05\x06"))
    return DataFormat::npy;
  std::string name = path.filename().string();
  if (name.ends_with(".safetensors")) return DataFormat::safetensors;
  if (name.ends_with(".npy") || name.ends_with(".npz")) return DataFormat::npy;
  if (name.ends_with(".gz")) name.resize(name.size() - 3);
  if (name.ends_with(".csv") || name.ends_with(".tsv")) return DataFormat::csv;
  struct Known {
    std::string_view start, what;
  };
  constexpr std::array kOthers{Known{"\xff\xd8\xff", "a single JPEG picture"},
                               Known{"\x89PNG", "a single PNG picture"},
                               Known{"GIF8", "a GIF picture"},
                               Known{"\x1f\x8b", "a gzip file that is named neither .csv.gz nor .tsv.gz"},
                               Known{"%PDF", "a PDF"},
                               Known{std::string_view("\0\0\x08", 3), "a single IDX file"},
                               Known{"PAR1", "a Parquet file"},
                               Known{"\x80\x02", "a pickle of Python"}};
  for (const Known& other : kOthers) {
    if (start.starts_with(other.start)) fail("{}: {}, {}", path.string(), other.what, kKnown);
  }
  const std::size_t nul = start.find('\0');
  check(nul == start.npos, "{}: byte {} is NUL, so it is no text, {}", path.string(), nul, kKnown);
  if (!whole) start.resize(start.find_last_of('\n') == start.npos ? start.size() : start.find_last_of('\n') + 1);
  return looks_like_table(start) ? DataFormat::csv : DataFormat::text;
}

}  // namespace

DataFormat detect_format(const fs::path& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  check(fs::exists(status), "{}: {}", path.string(), error ? error.message() : "No such file or directory");
  return fs::is_directory(status) ? format_of_folder(path) : format_of_file(path);
}

}  // namespace lockstep
