//! `strftime` in the C locale.

use std::fmt::Write;

const DAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// A moment in the proleptic Gregorian calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Moment {
    year: i64,
    /// From 1.
    month: usize,
    /// From 1.
    day: i64,
    /// From 1.
    day_of_year: i64,
    /// Sunday is 0.
    weekday: usize,
    hour: i64,
    minute: i64,
    second: i64,
}

/// Formats a local time, in seconds since the epoch, by the directives that templates use; others stay as they are.
pub(super) fn format(format: &str, local_seconds: i64) -> String {
    let moment = Moment::new(local_seconds);
    let mut text = String::with_capacity(format.len() + 16);
    let mut rest = format;
    while let Some(at) = rest.find('%') {
        let (before, directive) = rest.split_at(at);
        text.push_str(before);
        let mut characters = directive.chars();
        characters.next();
        let mut letter = characters.next();
        let bare = letter == Some('-');
        if bare {
            letter = characters.next();
        }
        rest = characters.as_str();
        match letter.and_then(|letter| moment.directive(letter, bare)) {
            Some(value) => text.push_str(&value),
            None => text.push_str(directive.strip_suffix(rest).unwrap_or(directive)),
        }
    }
    text.push_str(rest);
    text
}

impl Moment {
    /// Splits a time into its fields (Howard Hinnant, `civil_from_days`).
    fn new(seconds: i64) -> Self {
        let days = seconds.div_euclid(86_400);
        let of_day = seconds.rem_euclid(86_400);
        let shifted = days.saturating_add(719_468);
        let era = shifted.div_euclid(146_097);
        let of_era = shifted.rem_euclid(146_097);
        let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
        let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let march_month = (5 * of_year + 2) / 153;
        let day = of_year - (153 * march_month + 2) / 5 + 1;
        let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
        let year = year_of_era + era * 400 + i64::from(month <= 2);
        let leap = i64::from((year % 4 == 0 && year % 100 != 0) || year % 400 == 0);
        let day_of_year = if month > 2 { of_year + 59 + leap + 1 } else { of_year - 306 + 1 };
        let place = |number: i64| usize::try_from(number).unwrap_or_default();
        Self {
            year,
            month: place(month),
            day,
            day_of_year,
            weekday: place((days + 4).rem_euclid(7)),
            hour: of_day / 3600,
            minute: of_day / 60 % 60,
            second: of_day % 60,
        }
    }

    fn directive(&self, letter: char, bare: bool) -> Option<String> {
        let month = MONTHS.get(self.month.wrapping_sub(1)).copied().unwrap_or_default();
        let day = DAYS.get(self.weekday).copied().unwrap_or_default();
        let month_number = i64::try_from(self.month).unwrap_or_default();
        let hour12 = (self.hour + 11) % 12 + 1;
        let two = |number: i64| if bare { number.to_string() } else { format!("{number:02}") };
        Some(match letter {
            'Y' => self.year.to_string(),
            'y' => two(self.year.rem_euclid(100)),
            'm' => two(month_number),
            'd' => two(self.day),
            'e' => format!("{:2}", self.day),
            'j' if bare => self.day_of_year.to_string(),
            'j' => format!("{:03}", self.day_of_year),
            'H' => two(self.hour),
            'I' => two(hour12),
            'M' => two(self.minute),
            'S' => two(self.second),
            'p' => if self.hour < 12 { "AM" } else { "PM" }.to_owned(),
            'B' => month.to_owned(),
            'b' | 'h' => short(month),
            'A' => day.to_owned(),
            'a' => short(day),
            'w' => self.weekday.to_string(),
            'F' => format!("{}-{:02}-{:02}", self.year, self.month, self.day),
            'T' => format!("{:02}:{:02}:{:02}", self.hour, self.minute, self.second),
            '%' => "%".to_owned(),
            _ => return None,
        })
    }
}

fn short(name: &str) -> String {
    let mut short = String::new();
    let written = write!(short, "{name:.3}");
    debug_assert!(written.is_ok(), "a string takes everything");
    short
}
