//! Who was denied most.

use std::fmt;

use super::escape::Escaped;
use super::words::grouped;
use crate::simulate::summary::Summary;

/// The same identities that `--summary` names.
pub(super) struct MostDenied<'a>(pub(super) &'a Summary);

impl fmt::Display for MostDenied<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let most = self.0.most_denied();
        writeln!(f, "<section>\n<h2>Most denied identities</h2>")?;
        let Some((highest, ..)) = most.first() else {
            return writeln!(f, "<p>Nobody was denied.</p>\n</section>");
        };
        write!(
            f,
            "<div class=\"scroll\"><table id=\"most-denied\">\n\
             <tr><th>identity</th><th>rule</th><th class=\"n\">denied</th><th></th></tr>\n"
        )?;
        for (count, rule, identity) in &most {
            let share = count * 100 / highest;
            writeln!(
                f,
                "<tr><td class=\"name\"><bdi>{}</bdi></td><td class=\"name\">{}</td>\
                 <td class=\"n\">{}</td><td class=\"share-cell\">\
                 <span class=\"share\" style=\"width: {share}%\"></span></td></tr>",
                Escaped(identity),
                Escaped(rule),
                grouped(*count)
            )?;
        }
        writeln!(f, "</table></div>\n</section>")
    }
}
