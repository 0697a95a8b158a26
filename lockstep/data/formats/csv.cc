#include "lockstep/data/formats/csv.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <set>
#include <span>
#include <system_error>
#include <utility>

#include "lockstep/base/count_of.h"
#include "lockstep/base/error.h"
#include "lockstep/base/option_error.h"
#include "lockstep/base/printable.h"
#include "lockstep/data/formats/gzip.h"
#include "lockstep/device/file_memory.h"

namespace lockstep {
namespace {

constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
constexpr std::array kDelimiters{'\t', ';', ','};
constexpr std::size_t kRowsForDelimiter = 100;
constexpr std::int64_t kRowsForHeader = 1000;
constexpr std::size_t kRowsForWidth = 100;
constexpr std::string_view kUnpackFirst = "gunzip it first";

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_blank(char c) { return c == ' ' || c == '\t'; }

bool equal_in_any_case(std::string_view text, std::string_view lower) {
  return std::ranges::equal(text, lower, {},
                            [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
}

std::string delimiter_name(char delimiter) {
  switch (delimiter) {
    case ',': return "comma";
    case '\t': return "tab";
    case ';': return "semicolon";
  }
  return fmt::format("delimiter {}", quoted_cell({&delimiter, 1}));
}

// Whether a number out of range is too large rather than too small, by the place of its first nonzero digit.
bool is_too_large(std::string_view number) {
  const std::size_t exponent_at = number.find_first_of("eE");
  long long exponent = 0;
  if (exponent_at != number.npos) {
    std::string_view digits = number.substr(exponent_at + 1);
    const bool negative = digits.starts_with('-');
    if (negative || digits.starts_with('+')) digits.remove_prefix(1);
    for (const char c : digits) exponent = std::min(exponent * 10 + (c - '0'), 1'000'000'000'000LL);
    if (negative) exponent = -exponent;
  }
  const std::string_view mantissa = number.substr(0, exponent_at);
  const std::size_t first = mantissa.find_first_of("123456789");
  const std::size_t point = std::min(mantissa.find('.'), mantissa.size());
  if (first == mantissa.npos) return false;
  const long long digits_before_point = static_cast<long long>(point) - static_cast<long long>(first);
  return digits_before_point + exponent > 0;
}

// One cell of a text, and what ends it.
struct RawCell {
  enum class End { delimiter, line, text };
  enum class Flaw { none, open_quote, text_after_quote };
  std::string_view content;  // between the quotes; quotes in it are written twice
  bool quoted = false;
  End end = End::text;
  Flaw flaw = Flaw::none;
};

class CellScanner {
 public:
  CellScanner(std::string_view text, char delimiter) : text_(text), delimiter_(delimiter) {}

  bool at_end() const { return at_ == text_.size(); }
  std::int64_t line() const { return line_; }
  // Skips empty lines. Call it where a row begins.
  void skip_empty_lines() {
    while (!at_end() && (text_[at_] == '\n' || text_[at_] == '\r')) skip_line_end();
  }

  RawCell next() {
    RawCell cell;
    std::size_t begin = at_;
    while (begin < text_.size() && is_blank(text_[begin]) && text_[begin] != delimiter_) ++begin;
    if (begin < text_.size() && text_[begin] == '"') {
      at_ = begin;
      read_quoted(cell);
    } else {
      at_ = begin;
      while (!at_end() && text_[at_] != delimiter_ && text_[at_] != '\n' && text_[at_] != '\r') ++at_;
      std::size_t end = at_;
      while (end > begin && is_blank(text_[end - 1])) --end;
      cell.content = text_.substr(begin, end - begin);
    }
    if (at_end()) {
      cell.end = RawCell::End::text;
    } else if (text_[at_] == delimiter_) {
      cell.end = RawCell::End::delimiter;
      ++at_;
    } else {
      cell.end = RawCell::End::line;
      skip_line_end();
    }
    return cell;
  }

 private:
  void skip_line_end() {
    if (text_[at_] == '\r' && at_ + 1 < text_.size() && text_[at_ + 1] == '\n') ++at_;
    ++at_;
    ++line_;
  }

  void read_quoted(RawCell& cell) {
    cell.quoted = true;
    const std::size_t begin = ++at_;
    while (true) {
      if (at_end()) {
        cell.content = text_.substr(begin);
        cell.flaw = RawCell::Flaw::open_quote;
        return;
      }
      if (text_[at_] == '"') {
        if (at_ + 1 == text_.size() || text_[at_ + 1] != '"') break;
        at_ += 2;
      } else if (text_[at_] == '\n' || text_[at_] == '\r') {
        skip_line_end();
      } else {
        ++at_;
      }
    }
    cell.content = text_.substr(begin, at_ - begin);
    ++at_;
    while (!at_end() && is_blank(text_[at_]) && text_[at_] != delimiter_) ++at_;
    if (at_end() || text_[at_] == delimiter_ || text_[at_] == '\n' || text_[at_] == '\r') return;
    cell.flaw = RawCell::Flaw::text_after_quote;
    while (!at_end() && text_[at_] != delimiter_ && text_[at_] != '\n' && text_[at_] != '\r') ++at_;
  }

  std::string_view text_;
  char delimiter_;
  std::size_t at_ = 0;
  std::int64_t line_ = 1;
};

char find_delimiter(std::string_view text) {
  char most = ',';
  std::size_t most_cells = 0;
  for (const char delimiter : kDelimiters) {
    CellScanner scanner(text, delimiter);
    std::size_t rows = 0, first = 0, all = 0;
    bool even = true;
    for (scanner.skip_empty_lines(); !scanner.at_end() && rows < kRowsForDelimiter;
         scanner.skip_empty_lines(), ++rows) {
      std::size_t cells = 0;
      RawCell cell;
      do {
        cell = scanner.next();
        ++cells;
        even = even && cell.flaw == RawCell::Flaw::none;
      } while (cell.end == RawCell::End::delimiter);
      if (rows == 0) first = cells;
      even = even && cells == first;
      all += cells - 1;
    }
    if (even && first >= 2) return delimiter;
    if (all > most_cells) {
      most_cells = all;
      most = delimiter;
    }
  }
  return most;
}

}  // namespace

std::string quoted_cell(std::string_view cell) {
  constexpr std::size_t kMost = 40;
  std::string_view start = cell.substr(0, kMost);
  const auto continues = [&](std::size_t at) { return (static_cast<unsigned char>(cell[at]) & 0xc0U) == 0x80U; };
  for (int i = 0; i < 3 && start.size() < cell.size() && continues(start.size()); ++i) start.remove_suffix(1);
  std::string text = "\"";
  for (const char c : start)
    text += c == '\n' ? std::string("\\n") : c == '\t' ? std::string("\\t") : std::string(1, c);
  return printable_name(text) + (cell.size() > kMost ? "...\"" : "\"");
}

CellNumber parse_cell(std::string_view cell) {
  constexpr std::array<std::string_view, 9> kMissing{"", "na", "n/a", "#n/a", "<na>", "nan", "-nan", "null", "none"};
  const bool starts_as_number = !cell.empty() && is_digit(cell.front());  // most cells: no words to compare with
  if (!starts_as_number &&
      (cell == "?" || std::ranges::any_of(kMissing, [&](auto word) { return equal_in_any_case(cell, word); }))) {
    return {};
  }
  const bool has_sign = cell.front() == '-' || cell.front() == '+';
  const std::string_view unsigned_cell = cell.substr(has_sign ? 1 : 0);
  if (equal_in_any_case(unsigned_cell, "inf") || equal_in_any_case(unsigned_cell, "infinity")) {
    return {CellKind::not_finite};
  }
  // std::from_chars also reads words such as nan(1).
  const std::size_t digit = unsigned_cell.starts_with('.') ? 1 : 0;
  if (unsigned_cell.size() <= digit || !is_digit(unsigned_cell[digit])) return {CellKind::text};
  const std::string_view number = cell.front() == '+' ? unsigned_cell : cell;
  double value = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), value);
  if (end != number.data() + number.size()) return {CellKind::text};
  if (error == std::errc::result_out_of_range) {
    if (is_too_large(number)) return {CellKind::not_finite};
    value = 0;
  } else if (error != std::errc()) {
    return {CellKind::text};
  }
  if (!std::isfinite(value)) return {CellKind::not_finite};
  return {CellKind::number, value};
}

class CsvParser {
 public:
  // The text comes from a file of `file_bytes` bytes.
  CsvParser(std::string text, std::uint64_t file_bytes, const std::string& name, const CsvOptions& options)
      : options_(options), file_bytes_(file_bytes) {
    table_.file_ = name;
    table_.cells_ = std::move(text);
  }

  Table parse() {
    std::string_view text = table_.cells_;
    const std::size_t nul = text.find('\0');
    check(nul == text.npos, "{}: byte {} is NUL, expected a text (in UTF-8 or another encoding without NUL bytes)",
          table_.file_, nul + 1);
    if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
    check(text.find_first_not_of(" \t\r\n") != text.npos, "{}: empty, expected rows of cells", table_.file_);
    if (options_.delimiter) {
      check(*options_.delimiter != '"' && *options_.delimiter != '\n' && *options_.delimiter != '\r',
            "csv: delimiter {}, expected a character other than quotes and line ends",
            quoted_cell({&*options_.delimiter, 1}));
    }
    table_.delimiter_ = options_.delimiter ? *options_.delimiter : find_delimiter(text);
    reserve(text);
    if (options_.skip_broken) columns_ = most_frequent_width(text);
    read_rows(text);
    check(!table_.lines_.empty(), "{}: no row without a flaw", table_.file_);
    table_.names_.resize(columns_);
    find_header();
    table_.cells_.resize(written_);
    table_.cells_.shrink_to_fit();
    check(table_.rows() > 0, "{}: has a header and no rows", table_.file_);
    return std::move(table_);
  }

 private:
  // Reserves at once the most memory that cells and rows can need, so that they are never copied.
  void reserve(std::string_view text) {
    constexpr std::size_t kBytesOfCell = sizeof table_.ends_[0] + sizeof(float);  // here, and in a TableDataset
    constexpr std::size_t kBytesOfRow = sizeof table_.lines_[0];
    constexpr std::size_t kBytesOfColumn = 256;  // its name, in several places
    const auto count = [&](std::string_view part, char c) {
      return static_cast<std::size_t>(std::ranges::count(part, c));
    };
    const std::size_t lines = count(text, '\n') + count(text, '\r') + 1;
    const std::size_t cells = lines + count(text, table_.delimiter_);
    const std::size_t columns = count(text.substr(0, text.find_first_of("\r\n")), table_.delimiter_) + 1;
    const std::size_t needed =
        table_.cells_.capacity() + kBytesOfCell * cells + kBytesOfRow * lines + kBytesOfColumn * columns;
    if (needed > kMemoryOfSmallFile) {
      check_file_memory(needed, file_bytes_, table_.file_,
                        fmt::format("{} bytes of text with {} cells", text.size(), cells), kUnpackFirst);
    }
    table_.ends_.reserve(cells);
    table_.lines_.reserve(lines);
  }

  // The number of cells that most of the first rows have, so that a title above the table does not decide it. Of two
  // numbers that are as frequent, that of the earlier row. 0: each row has a flaw.
  std::size_t most_frequent_width(std::string_view text) const {
    CellScanner scanner(text, table_.delimiter_);
    std::vector<std::pair<std::size_t, std::size_t>> counts;  // of cells, and of rows that have so many
    std::size_t rows = 0;
    for (scanner.skip_empty_lines(); !scanner.at_end() && rows < kRowsForWidth; scanner.skip_empty_lines(), ++rows) {
      std::size_t cells = 0;
      bool flaw = false;
      RawCell cell;
      do {
        cell = scanner.next();
        ++cells;
        flaw = flaw || cell.flaw != RawCell::Flaw::none;
      } while (cell.end == RawCell::End::delimiter);
      if (flaw) continue;
      const auto same = std::ranges::find(counts, cells, &std::pair<std::size_t, std::size_t>::first);
      if (same == counts.end()) {
        counts.emplace_back(cells, 1);
      } else {
        ++same->second;
      }
    }
    const auto most = std::ranges::max_element(counts, {}, &std::pair<std::size_t, std::size_t>::second);
    return most == counts.end() ? 0 : most->first;
  }

  // Moves the cells toward the front of cells_, in place: a cell never moves toward the end.
  void read_rows(std::string_view text) {
    CellScanner scanner(text, table_.delimiter_);
    for (scanner.skip_empty_lines(); !scanner.at_end(); scanner.skip_empty_lines()) {
      const std::int64_t line = scanner.line();
      const std::uint64_t written_before = written_;
      const std::size_t cells_before = table_.ends_.size();
      std::string flaw;
      RawCell cell;
      do {
        const std::int64_t cell_line = scanner.line();
        cell = scanner.next();
        store(cell);
        if (cell.flaw != RawCell::Flaw::none && flaw.empty()) {
          flaw = fmt::format("{}: line {}, column {}: {}", table_.file_, cell_line, table_.ends_.size() - cells_before,
                             cell.flaw == RawCell::Flaw::open_quote
                                 ? "a quote begins here and never ends"
                                 : "text follows a closing quote, expected a delimiter (write quotes in a quoted cell "
                                   "twice)");
        }
      } while (cell.end == RawCell::End::delimiter);
      const std::size_t cells = table_.ends_.size() - cells_before;
      if (columns_ == 0 && flaw.empty()) columns_ = cells;
      if (first_line_ == 0 && flaw.empty() && cells == columns_) first_line_ = line;
      if (flaw.empty() && cells != columns_) {
        flaw = options_.skip_broken
                   ? "a wrong number of cells"  // nobody reads it
                   : fmt::format("{}: line {} has {}, expected {} as in line {} (delimiter: {})", table_.file_, line,
                                 count_of(cells, "cell"), columns_, first_line_, delimiter_name(table_.delimiter_));
      }
      if (!flaw.empty()) {
        check_option(options_.skip_broken, "skip_broken", "{}; skip_broken leaves such rows out", flaw);
        ++table_.skipped_;
        table_.ends_.resize(cells_before);
        written_ = written_before;
        continue;
      }
      table_.lines_.push_back(line);
    }
  }

  void store(const RawCell& cell) {
    char* const to = table_.cells_.data() + written_;
    std::size_t size = cell.content.size();
    if (cell.quoted && cell.content.find('"') != cell.content.npos) {
      size = 0;
      for (std::size_t i = 0; i < cell.content.size(); ++i) {
        if (cell.content[i] == '"') ++i;  // the second one of two
        if (i < cell.content.size()) to[size++] = cell.content[i];
      }
    } else if (size > 0) {
      std::memmove(to, cell.content.data(), size);
    }
    written_ += size;
    table_.ends_.push_back(written_);
  }

  void find_header() {
    table_.header_ = options_.header ? *options_.header : looks_like_header();
    for (std::size_t c = 0; c < columns_; ++c) table_.names_[c] = std::to_string(c + 1);
    if (!table_.header_) return;
    std::set<std::string> seen;
    for (std::size_t c = 0; c < columns_; ++c) {
      const std::string name = first_cell(c);
      if (name.empty()) continue;
      check(seen.insert(name).second, "{}: line {}: two columns have the name {}, expected different names",
            table_.file_, first_line_, quoted_cell(name));
      table_.names_[c] = name;
    }
    for (std::size_t c = 0; c < columns_; ++c) {
      const std::string number = std::to_string(c + 1);
      check(!first_cell(c).empty() || !seen.contains(number),
            "{}: line {}: column {} has no name, and another one has the name {}", table_.file_, first_line_, number,
            number);
    }
    table_.lines_.erase(table_.lines_.begin());
  }

  std::string first_cell(std::size_t c) const {
    const std::uint64_t begin = c == 0 ? 0 : table_.ends_[c - 1];
    return table_.cells_.substr(begin, table_.ends_[c] - begin);
  }

  bool looks_like_header() const {
    const std::int64_t rows = std::min(table_.rows(), kRowsForHeader);
    if (rows < 2) return false;
    if (counts_columns()) return true;
    const auto columns = static_cast<std::int64_t>(columns_);
    std::set<std::string_view> names;
    for (std::int64_t c = 0; c < columns; ++c) {
      const CellKind kind = parse_cell(table_.cell(0, c)).kind;
      if (kind == CellKind::number || kind == CellKind::not_finite) return false;
      names.insert(table_.cell(0, c));
    }
    bool all_differ = std::ssize(names) == columns;
    for (std::int64_t c = 0; c < columns; ++c) {
      std::int64_t numbers = 0, texts = 0;
      for (std::int64_t r = 1; r < rows; ++r) {
        const CellKind kind = parse_cell(table_.cell(r, c)).kind;
        numbers += kind == CellKind::number ? 1 : 0;
        texts += kind == CellKind::text ? 1 : 0;
        all_differ = all_differ && !names.contains(table_.cell(r, c));
      }
      if (is_column_of_numbers(numbers, texts)) return true;
    }
    return all_differ;
  }

  // Whether the first row counts the columns from 0 or 1, maybe with texts in between, as pandas names them.
  bool counts_columns() const {
    const auto columns = static_cast<std::int64_t>(columns_);
    for (const std::int64_t from : {0, 1}) {
      std::int64_t counted = 0, texts = 0;
      for (std::int64_t c = 0; c < columns; ++c) {
        if (table_.cell(0, c) == std::to_string(c + from)) {
          ++counted;
        } else if (parse_cell(table_.cell(0, c)).kind == CellKind::text) {
          ++texts;
        }
      }
      if (counted >= 3 && counted + texts == columns) return true;
    }
    return false;
  }

  CsvOptions options_;
  std::uint64_t file_bytes_;
  Table table_;
  std::size_t columns_ = 0;
  std::int64_t first_line_ = 0;
  std::uint64_t written_ = 0;
};

std::int64_t Table::rows() const { return std::ssize(lines_); }

std::string_view Table::cell(std::int64_t row, std::int64_t column) const {
  const std::size_t i =
      static_cast<std::size_t>(row + (header_ ? 1 : 0)) * names_.size() + static_cast<std::size_t>(column);
  const std::uint64_t begin = i == 0 ? 0 : ends_[i - 1];
  return std::string_view(cells_).substr(begin, ends_[i] - begin);
}

std::int64_t Table::column(std::string_view name) const {
  const auto found = std::ranges::find(names_, name);
  if (found != names_.end()) return found - names_.begin();
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  if (error == std::errc() && end == name.data() + name.size() && number >= 1 && number <= columns()) return number - 1;
  constexpr std::size_t kMostNames = 20;
  std::string known;
  for (std::size_t c = 0; c < std::min(names_.size(), kMostNames); ++c) {
    known += (c > 0 ? ", " : "") + quoted_cell(names_[c]);
  }
  fail("{}: there is no column {}, expected {}{}, or a number from 1 to {}", file_, quoted_cell(name), known,
       names_.size() > kMostNames ? ", ..." : "", columns());
}

std::string Table::place(std::int64_t row, std::int64_t column) const {
  const std::string number = std::to_string(column + 1);
  const std::string& name = names_[static_cast<std::size_t>(column)];
  const std::string shown = quoted_cell(name);
  return fmt::format("{}: line {}, column {}{}", file_, line(row), number,
                     name == number ? "" : fmt::format(" ({})", shown.substr(1, shown.size() - 2)));
}

std::string Table::describe() const {
  return fmt::format("{}: {}, {}, {}, {}, {}", file_, delimiter_ == '\t' ? "TSV" : "CSV", delimiter_name(delimiter_),
                     header_ ? "header" : "no header", count_of(rows(), "row"), count_of(columns(), "column"));
}

Table parse_csv(std::string text, const std::string& name, const CsvOptions& options) {
  const std::uint64_t bytes = text.size();
  return CsvParser(std::move(text), bytes, name, options).parse();
}

Table read_csv(const std::filesystem::path& path, const CsvOptions& options) {
  std::error_code ignored;
  check(!std::filesystem::is_directory(path, ignored), "cannot read {}: it is a directory", path.string());
  std::ifstream file(path, std::ios::binary);
  check(file.is_open(), "cannot read {}: {}", path.string(), std::generic_category().message(errno));
  check(std::filesystem::is_regular_file(path, ignored), "cannot read {}: it is not a regular file", path.string());
  const std::uintmax_t known = std::filesystem::file_size(path, ignored);
  const std::uint64_t size = ignored ? 0 : known;
  GzipReader input(file, path.string());
  std::string text;
  // Doubles the memory as text arrives. Asks for one byte more than the file has, so that a short read shows the end.
  constexpr std::size_t kFirst = std::size_t{1} << 20;
  std::size_t have = 0, room = std::max<std::size_t>(input.packed() ? 0 : size + 1, kFirst);
  while (true) {
    // The text exists twice while it moves to larger memory.
    check_file_memory(have + room, size, path.string(), fmt::format("more than {} bytes of text", have), kUnpackFirst);
    text.resize(room);
    const std::span<std::uint8_t> wanted(reinterpret_cast<std::uint8_t*>(text.data()) + have, room - have);
    const std::size_t got = input.read(wanted);
    have += got;
    if (got < wanted.size()) break;
    room *= 2;
  }
  text.resize(have);
  return CsvParser(std::move(text), size, path.string(), options).parse();
}

}  // namespace lockstep
