# Plain comments as Doxygen's: those above something, those behind it, the first of a file for the file. What stands three
# spaces in is code. (What is added to std confuses Doxygen.)
1s|^// |/// @file\n/// |
s|^( *)//   |\1///       |
s|^( *)//( \|$)|\1///\2|
s|([;,{}]) +// |\1 ///< |
/^template <> struct std::hash/,/^};/d
