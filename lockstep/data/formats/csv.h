// CSV and TSV files: rows of cells.
//
//   const Table table = read_csv("iris.csv");
//   fmt::print("{}\n", table.describe());  // iris.csv: CSV, comma, header, 150 rows, 5 columns
//   std::string_view cell = table.cell(0, 4);
//
// Cells follow RFC 4180: a cell in double quotes may contain delimiters, line ends, and quotes written twice. Lines end
// with LF, CRLF, or CR. A byte order mark and empty lines are skipped, and so are spaces and tabs around a cell. Cells
// are bytes; no encoding is assumed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/error.h"

namespace LOCKSTEP_API lockstep {

struct CsvOptions {
  // Any character except quotes and line ends. Not set: the first of tab, semicolon, and comma that cuts each of the
  // first 100 rows into the same number of cells, at least two. If none does, the one that makes the most cells.
  std::optional<char> delimiter = {};
  // Whether the first row has the names of the columns. Not set: it does if none of its cells is a number and, in the
  // first 1,000 rows, either is_column_of_numbers() is true below one of them, or its cells differ and occur nowhere
  // below. It also does if its cells count the columns from 0 or 1, maybe with texts in between.
  std::optional<bool> header = {};
  // Leaves out and counts rows with broken quotes or a wrong number of cells, instead of throwing. The number that most
  // of the first 100 rows have is then the right one; otherwise it is that of the first row.
  bool skip_broken = false;
};

// The cells of a file, in memory. They take the bytes of the file, 8 bytes for each cell, and 8 bytes for each row.
class Table {
 public:
  // Name of the file in errors.
  const std::string& file() const { return file_; }
  char delimiter() const { return delimiter_; }
  bool has_header() const { return header_; }
  // Number of broken rows that were left out.
  std::int64_t skipped() const { return skipped_; }

  std::int64_t rows() const;
  std::int64_t columns() const { return static_cast<std::int64_t>(names_.size()); }
  // Names from the header. Where there is none, or an empty one, the number of the column, from 1: "1", "2", ...
  const std::vector<std::string>& names() const { return names_; }
  // Returns the index, from 0, of the column with this name or, if there is none, with this number, from 1. Throws an
  // error that lists the columns.
  std::int64_t column(std::string_view name) const;

  // Row and column count from 0. The view is valid as long as the table is neither changed nor destroyed.
  std::string_view cell(std::int64_t row, std::int64_t column) const;
  // The line of the file, from 1, in which a row begins.
  std::int64_t line(std::int64_t row) const { return lines_[static_cast<std::size_t>(row)]; }
  // "iris.csv: line 3, column 2 (petal length)", for errors.
  std::string place(std::int64_t row, std::int64_t column) const;
  // "iris.csv: CSV, comma, header, 150 rows, 5 columns"
  std::string describe() const;

 private:
  friend class CsvParser;
  std::string file_, cells_;
  std::vector<std::uint64_t> ends_;  // end of each cell in cells_, where the next cell begins
  std::vector<std::int64_t> lines_;
  std::vector<std::string> names_;
  std::int64_t skipped_ = 0;
  char delimiter_ = ',';
  bool header_ = false;
};

// Reads a file, gzipped or not. Throws an Error that names the file, the line, what was found, and what was expected:
// for an empty file, rows of different lengths, a quote that is not closed or is followed by text, NUL bytes, names
// that occur twice, a file that needs more memory than this process has left, and a gzipped file whose table would take
// more than 64 MiB and 256 times the file (to read it, gunzip it first).
Table read_csv(const std::filesystem::path& path, const CsvOptions& options = {});
// The same for text in memory. Errors call it `name`.
Table parse_csv(std::string text, const std::string& name, const CsvOptions& options = {});

// What a cell holds. Numbers are 5, -0.5, +3, .5, 1e-3; std::from_chars reads them, so the locale does not matter.
enum class CellKind : std::uint8_t {
  missing,     // empty, "NA", "N/A", "#N/A", "<NA>", "nan", "-nan", "null", "none", "?", in any case
  number,      // `value` has it, rounded to the nearest f64
  not_finite,  // "inf", "-infinity", or beyond f64, as 1e400
  text,        // all else: "0x10", "1,5", "1_000", "12 kg"
};
struct CellNumber {
  CellKind kind = CellKind::missing;
  double value = 0;
};
CellNumber parse_cell(std::string_view cell);

// Whether a column with so many numbers and texts has numbers, of which at most one in ten is damaged.
inline bool is_column_of_numbers(std::int64_t numbers, std::int64_t texts) {
  return numbers > 0 && numbers >= 9 * texts;
}

// A cell for an error message: in quotes, on one line, without control characters, cut to 40 bytes.
std::string quoted_cell(std::string_view cell);

}  // namespace lockstep
